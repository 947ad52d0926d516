"""Who may reach this broker, by which listener, who he is, and what he may do: listeners, TLS, logins, ACLs."""
