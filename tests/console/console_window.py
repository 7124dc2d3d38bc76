"""Windows of the tests that use a browser, and what is looked for on every page in them."""

from __future__ import annotations

__all__ = ["APART", "ARGUMENTS", "PHONE", "WIDE", "WINDOWS"]

ARGUMENTS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
)  # fmt: skip
WIDE, PHONE = {"width": 1400, "height": 860}, {"width": 400, "height": 760}
WINDOWS = {
    "light-wide": ("light", WIDE),
    "dark-wide": ("dark", WIDE),
    "light-phone": ("light", PHONE),
    "dark-phone": ("dark", PHONE),
}
#: Pairs of a grave button and another one that are nearer than a finger is wide.
APART = """() => {
  const found = [], box = (e) => e.getBoundingClientRect();
  for (const grave of document.querySelectorAll("main a.grave"))
    for (const other of document.querySelectorAll("main a.button:not(.grave), main button:not(.grave)")) {
      const [a, b] = [box(grave), box(other)];
      const x = Math.max(a.left - b.right, b.left - a.right), y = Math.max(a.top - b.bottom, b.top - a.bottom);
      if (Math.max(x, y) < 8 || (y < 0 && x < 24)) found.push([grave.innerText, other.innerText, x, y]);
    }
  return found;
}"""
