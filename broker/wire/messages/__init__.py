"""The message tables, a module per API with its request, response and nested structs."""
