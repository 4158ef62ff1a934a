"""What becomes of the prompts that no request uses: the prompt cache, slot files, dropping."""
