"""What can be wrong with a model version or a picture."""


class ServingError(Exception):
    """What happened, what was expected and what to do, in one message without a stack trace."""


class ModelError(ServingError):
    """A model version is missing, incomplete or damaged."""


class UnavailableError(ModelError):
    """What computes a version cannot be reached, or does not have it; a little later it may."""


class GoneError(UnavailableError):
    """What computes a version answers, and has it no more."""


class UnknownModelError(ServingError):
    """No model, version or label of that name is served."""


class RequestError(ServingError):
    """A request is not what the protocol or the model takes."""


class OutputError(ServingError):
    """A model computed something that is no number."""


class PictureError(ServingError):
    """A picture is missing, unreadable, or not what the model takes."""


class LimitError(ServingError):
    """A request is larger than it may be."""


class SlowError(ServingError):
    """A prediction took longer than it may."""


class AccessError(ServingError):
    """A request without the right key."""


class BusyError(ServingError):
    """More is waiting than may wait."""

    def __init__(self, why: str, after: float) -> None:
        self.after = max(after, 0.1)
        super().__init__(f"{why} Try again in {self.after:.1f} s.")
