"""The data path of a link: fetch, filter, patch, produce, acknowledge."""
