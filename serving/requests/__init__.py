"""Parts that HTTP and gRPC share: access control, records and metrics of requests, and the answers to errors."""
