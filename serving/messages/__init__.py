"""Protobuf messages of published protocols, without the packages that publish them."""
