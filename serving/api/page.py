"""The page at `/`, and what it is made of at `/static`."""

from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.responses import FileResponse, Response
from fastapi.staticfiles import StaticFiles

PAGE = Path(__file__).parents[1] / "page"
# All that it may load is from here: no script in the page itself, no frame around it, nothing from elsewhere.
_ALLOWED = (
    "default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self' blob:", "connect-src 'self'",
    "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'",
)  # fmt: skip
HEADERS = {
    "Content-Security-Policy": "; ".join(_ALLOWED),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    # Asked for again each time, and answered with 304: after an update all of its parts are of one version.
    "Cache-Control": "no-cache",
}


def add(app: FastAPI) -> None:
    """Adds the page to an app."""

    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(PAGE / "index.html", headers=HEADERS)

    app.mount("/static", _Files(directory=PAGE), name="static")


class _Files(StaticFiles):
    def file_response(self, *args: Any, **options: Any) -> Response:
        answer = super().file_response(*args, **options)
        answer.headers.update(HEADERS)
        return answer
