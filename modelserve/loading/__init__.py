"""Loading of models: copy them from the registry, load, check and warm them, and replace the serving snapshot."""
