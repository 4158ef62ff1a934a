// Test programs of named cases: `program NAME` runs one, in a process of its own, because a backend is loaded once.
//
//     CASE(a_sentence_that_says_what_holds) { CHECK(1 + 1 == 2); }
//     int main(int argc, char ** argv) { return run_case(argc, argv); }
#pragma once

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

using CaseFunction = void (*)();

inline std::map<std::string, CaseFunction> & all_cases() {
    static std::map<std::string, CaseFunction> cases;
    return cases;
}

struct CaseEntry {
    CaseEntry(const char * name, CaseFunction function) { all_cases()[name] = function; }
};

#define CASE(name)                                   \
    static void      name();                         \
    static CaseEntry name##_entry(#name, name);      \
    static void      name()

// Ends the process at the first one that does not hold.
#define CHECK(condition)                                                           \
    do {                                                                           \
        if (!(condition)) {                                                        \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            abort();                                                               \
        }                                                                          \
    } while (0)

inline int run_case(int argc, char ** argv) {
    const auto found = argc == 2 ? all_cases().find(argv[1]) : all_cases().end();
    if (found == all_cases().end()) {
        for (const auto & entry : all_cases()) {
            printf("%s\n", entry.first.c_str());
        }
        return argc == 1 ? 0 : 2;
    }
    found->second();
    return 0;
}
