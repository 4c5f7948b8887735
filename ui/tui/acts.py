"""What can be done with an exchange wherever it is shown: follow its connection, compare, send again, export, copy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import side_screens

if TYPE_CHECKING:
    from ...captures import Row
    from ...decoder import Exchange
    from .app import BarnabasApp
    from .copying import Form


class RowActs:
    """The actions of a screen with an exchange under the cursor: `acting_on`."""

    @property
    def barnabas(self) -> BarnabasApp:
        """The application, typed."""
        raise NotImplementedError

    def acting_on(self) -> Row | None:
        """The exchange that is meant, if there is one."""
        raise NotImplementedError

    def shown_values(self) -> bool:
        """Whether keys and values of records are shown."""
        return False

    def shown_rows(self) -> tuple[str, int]:
        """The filter of what is shown, and how many exchanges that are; ("", all) where no list is."""
        return "", len(self.barnabas.session.capture.rows())

    def copy_here(self) -> list[Form]:
        """What can be copied of what is under the cursor, besides the whole exchange."""
        return []

    def _exchange(self, row: Row) -> Exchange:
        return self.barnabas.session.capture.exchange(row)

    def action_dialogue(self) -> None:
        row = self.acting_on()
        if row is not None:
            side_screens.dialogue(self.barnabas, row)

    def action_compare(self) -> None:
        row = self.acting_on()
        if row is not None:
            side_screens.compare(self.barnabas, row)

    def action_resend(self) -> None:
        from .resend import resend

        row = self.acting_on()
        if row is not None:
            resend(self.barnabas, row, self._exchange(row))

    def action_export(self) -> None:
        from .exporting import export, forms

        row = self.acting_on()
        if row is not None:
            shown, count = self.shown_rows()
            values, capture = self.shown_values(), self.barnabas.session.capture
            export(self.barnabas, forms(capture, row, self._exchange(row), values, shown, count))

    def action_copy_as(self) -> None:
        from .copying import copy_one, of_exchange

        row = self.acting_on()
        if row is not None:
            whole = of_exchange(row, self._exchange(row), self.shown_values())
            copy_one(self.barnabas, [*self.copy_here(), *whole])
