"""Reports: pages of text with tables and plots of searches in them, as they are now or as they were kept."""
