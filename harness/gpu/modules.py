"""Modules that are made here, and take the place of installed ones."""

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def put(name: str, **content: Any) -> ModuleType:
    """Have `import name` find a package with `content`, whatever is installed."""
    module = ModuleType(name)
    module.__spec__ = ModuleSpec(name, None, is_package=True)
    module.__path__ = []
    vars(module).update(content)
    sys.modules[name] = module
    return module
