"""The line that `verbose=1` shows while a fit goes on."""

import sys
import time


class Line:
    """One line rewritten on a terminal; elsewhere a line for each tenth of the epochs."""

    def __init__(self, epochs: int, shown: bool):
        self.epochs, self.shown, self.done, self.start = epochs, shown, 0, time.perf_counter()
        self.terminal = sys.stdout.isatty()

    def show(self, record: dict[str, float]) -> None:
        self.done += 1
        if not self.shown:
            return
        if not self.terminal and self.done % max(1, self.epochs // 10) and self.done != self.epochs:
            return
        spent = time.perf_counter() - self.start
        left = spent / self.done * (self.epochs - self.done)
        figures = ", ".join(
            f"{name.replace('_', ' ')} {record[name]:.4g}"
            for name in ("train_loss", "train_error", "validation_loss", "reconstruction_error")
            if name in record
        )
        text = f"epoch {self.done} of {self.epochs}: {figures}; {spent:.1f} s, {left:.0f} s left"
        print(f"\r{text:<78}" if self.terminal else text, end="" if self.terminal else "\n", flush=True)

    def close(self) -> None:
        if self.shown and self.terminal and self.done:
            print()
