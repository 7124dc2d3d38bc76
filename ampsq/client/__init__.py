"""The classes that applications import: `Client`, `AsyncClient`, what they have at one instance, administration."""
