"""Starting the release's scheduler in this process, by its own `run_scheduler_process`."""

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any


class Refused(Exception):
    """sglang does not start with these arguments; the cause is what it raised."""


class _Made(BaseException):
    """Carries a scheduler out of sglang's function, which has `except Exception` around it, before it is served."""

    def __init__(self, scheduler: Any) -> None:
        super().__init__()
        self.scheduler = scheduler


class Failed(BaseException):
    """Carries an error out, before sglang has it end the parent process."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


def carrying(call: Callable[..., Any]) -> Callable[..., Any]:
    """`call`, whose errors come as Failed."""

    @functools.wraps(call)
    def carried(*args: Any, **kwargs: Any) -> Any:
        try:
            return call(*args, **kwargs)
        except Exception as error:
            raise Failed(error) from error

    return carried


def start(arguments: Mapping[str, Any]) -> Any:
    """A scheduler with its workers, not yet in its event loop. Raises Refused. One per process: its state is global."""
    from sglang.srt.managers import scheduler as module

    try:
        server_args, port_args = _prepared(arguments)
    except Exception as error:
        raise Refused from error
    construct = module.Scheduler.__init__

    def constructed(self: Any, *args: Any, **kwargs: Any) -> None:
        carrying(construct)(self, *args, **kwargs)
        raise _Made(self)

    ranks = dict.fromkeys(("gpu_id", "tp_rank", "attn_cp_rank", "moe_dp_rank", "moe_ep_rank", "pp_rank"), 0)
    given = ranks | {"server_args": server_args, "port_args": port_args, "dp_rank": None, "pipe_writer": None}
    names = inspect.signature(module.run_scheduler_process).parameters
    module.Scheduler.__init__ = constructed
    try:
        module.run_scheduler_process(**{name: value for name, value in given.items() if name in names})
    except _Made as made:
        return made.scheduler
    except Failed as failed:
        raise Refused from failed.error
    finally:
        module.Scheduler.__init__ = construct
    raise AssertionError("run_scheduler_process ended without a scheduler")


def _prepared(arguments: Mapping[str, Any]) -> tuple[Any, Any]:
    """Server and port arguments as the engine makes them before it starts processes."""
    from sglang.srt.server_args import PortArgs, ServerArgs

    server_args = ServerArgs(**arguments)
    if hasattr(server_args, "resolve_once"):
        server_args.resolve_once()
    server_args.check_server_args()
    return server_args, PortArgs.init_new(server_args)


def unknown_option(error: Exception) -> str:
    """The server option that this release does not have, if that is what `error` says."""
    found = re.search(r"ServerArgs.*unexpected keyword argument '(\w+)'", str(error))
    return found[1] if found and isinstance(error, TypeError) else ""
