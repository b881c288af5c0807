"""How a project's profile is collected: its own switch, or code that is put in (PF-01, PF-02)."""
