package cli_test

import "testing"

func TestBenchListsWhatItMeasures(t *testing.T) {
	run(t, nil, "bench", "--list").want(t, 0, "river-tuned", "webhook-burst", "accept-sql", "backlog-finished")
}

func TestBenchRefusesWhatItDoesNotKnow(t *testing.T) {
	run(t, nil, "bench", "--only", "river,nonesuch").want(t, 2, `there is no scenario "nonesuch"; see dispatcher bench --list`)
	run(t, nil, "bench", "--rounds", "-1").want(t, 2, "numbers must be positive")
	run(t, nil, "bench", "--hosts", "101").want(t, 2, "100 destinations at most")
	run(t, nil, "bench", "--only", "river", "--database-url", "nonsense").want(t, 1, "database URL cannot be parsed")
}
