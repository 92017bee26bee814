"""How figures are shown: tables, series and notices as data, and their renderers."""
