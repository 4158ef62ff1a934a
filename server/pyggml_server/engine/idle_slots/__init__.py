"""What becomes of prompts that no request uses: the prompt cache, slot files, dropping."""
