"""The port of the gRPC servers; imports no gRPC, because the supervisor forks its workers afterwards."""

import socket


def reserve(host: str, port: int) -> socket.socket:
    """Reserves a port for the gRPC servers of this process and its children.

    gRPC binds its port itself, once per worker, with SO_REUSEPORT. That alone would silently share a port with another
    endpoint of the same user.

    Args:
        host: address to listen on.
        port: port; 0 is a free one.

    Returns:
        A bound socket, which receives no connections; keep it open.

    Raises:
        OSError: the address cannot be used, or is in use.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Without SO_REUSEPORT, so that a port in use is noticed.
    with socket.create_server((host, port), family=family) as found:
        port = found.getsockname()[1]
    reserved = socket.socket(family, socket.SOCK_STREAM)
    try:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reserved.bind((host, port))
    except OSError:
        reserved.close()
        raise
    return reserved
