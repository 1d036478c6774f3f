"""Shared parts of studies: results, tables and figures."""
