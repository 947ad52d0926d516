"""What is seen of both sites of a link before anything is decided: who answers, where logs and groups stand."""
