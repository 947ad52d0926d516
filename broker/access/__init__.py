"""Who may reach this broker, by which listener, and who he is: listeners, TLS, logins."""
