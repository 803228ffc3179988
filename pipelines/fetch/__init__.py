"""Download of published traces: downloads can be resumed, are verified by SHA-256 and unpacked."""
