"""Topics of a link: selection, creation and configs at the target, as plans."""
