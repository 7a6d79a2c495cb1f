"""Every run of a project in one table: searched, grouped, tagged, kept as views."""
