"""The control API: HTTP on loopback or on a Unix socket, to see and to steer a proxy that runs. docs/control.md."""

from .client import Control, ControlError
from .startup import ControlConfig

__all__ = ["Control", "ControlConfig", "ControlError"]
