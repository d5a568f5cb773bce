"""What tools need of the runtime, so that they need not import it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, Union

__all__ = ["WorkerCreator", "WorkerDelegator"]


class WorkerDelegator(Protocol):
    """Calls workers by name. `RuntimeDelegator` is one."""

    async def call_async(self, worker: str, input_data: Any = None, attachments: Union[Sequence[Any], None] = None) -> Any: ...

    def call_sync(self, worker: str, input_data: Any = None, attachments: Union[Sequence[Any], None] = None) -> Any: ...


class WorkerCreator(Protocol):
    """Creates workers. `RuntimeCreator` is one."""

    def create(
        self,
        name: str,
        instructions: str,
        description: Union[str, None] = None,
        model: Union[str, None] = None,
        toolsets: Sequence[str] = (),
        force: bool = False,
    ) -> Any: ...
