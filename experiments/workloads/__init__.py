"""The intermediate representations that readers and captures give and policies see: immutable, SI units."""
