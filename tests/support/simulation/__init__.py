"""The simulation: schedules of faults, drawn from seeds, over the production operators, epoch protocol and coordinator."""
