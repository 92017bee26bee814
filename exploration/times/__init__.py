"""How long runs of consecutive layers take on an accelerator."""
