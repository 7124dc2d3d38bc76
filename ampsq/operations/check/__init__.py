"""Whether what an instance holds is right, and making it right again from log and journal."""
