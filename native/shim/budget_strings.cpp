// Strings and string streams, compiled into this library, so that what they allocate is counted: see budget.hpp.
//
// Their usual code lies in libstdc++. A program that has loaded libstdc++ before this library, as numpy does, has bound
// it to its own `operator new`, and a template could make one string of all of the memory. Our libraries look here first.
#include <sstream>
#include <string>

#if defined(__GLIBCXX__)
template class std::basic_string<char>;
template class std::basic_stringbuf<char>;
template class std::basic_istringstream<char>;
template class std::basic_ostringstream<char>;
template class std::basic_stringstream<char>;
#endif
