"""Seconds as they are read."""


def clock(seconds: float) -> str:
    """Hours, minutes and seconds, without hours where there are none.

    Example:
        clock(3661.2)  # "1:01:01"
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
