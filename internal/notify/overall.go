package notify

// DeliveryView is what the status of a step is made from.
type DeliveryView struct {
	Status Status
	Final  bool
}

// StepStatus joins the deliveries of one step. The step has come as far as its
// best target: it is accepted when one device is. Without a success it is where
// its open deliveries are, and when all have ended without one, the worst of
// the ends: failed, expired, canceled, suppressed.
func StepStatus(deliveries []DeliveryView) Status {
	success, open, ended := Pending, Pending, Status("")
	for _, d := range deliveries {
		switch {
		case d.Status == Sent || d.Status == Delivered || d.Status == Read:
			success = Best(success, d.Status)
		case !d.Final:
			open = Best(open, d.Status)
		case endOrder(d.Status) > endOrder(ended):
			ended = d.Status
		}
	}
	switch {
	case success != Pending:
		return success
	case open != Pending || ended == "":
		return open
	}
	return ended
}

func endOrder(s Status) int {
	switch s {
	case Failed:
		return 4
	case Lapsed:
		return 3
	case Canceled:
		return 2
	case Blocked:
		return 1
	}
	return 0
}

// Overall derives the status of a notification from its deliveries, grouped by
// step, and whether that is its end. canceled says that a cancel was confirmed,
// which outweighs what a call in flight turned out to be.
func Overall(mode Mode, byStep [][]DeliveryView, canceled bool) (s Status, final bool) {
	final = true
	called, moving := false, false
	for _, deliveries := range byStep {
		for _, d := range deliveries {
			final = final && d.Final
			switch d.Status {
			case Waiting, Queued:
				moving = moving || !d.Final
			case Sending, Uncertain:
				moving, called = moving || !d.Final, true
			case Canceled, Blocked, Lapsed:
			default:
				called = true
			}
		}
	}
	switch {
	case moving && called:
		return Sending, false
	case moving:
		return Queued, false
	case canceled:
		return Canceled, final
	case mode == All:
		return overallOfAll(byStep), final
	}
	return overallOfFirst(byStep), final
}

func overallOfFirst(byStep [][]DeliveryView) Status {
	best, last, blockedOnly := Pending, Failed, true
	for _, deliveries := range byStep {
		if len(deliveries) == 0 {
			continue
		}
		last = StepStatus(deliveries)
		blockedOnly = blockedOnly && last == Blocked
		if last == Sent || last == Delivered || last == Read {
			best = Best(best, last)
		}
	}
	switch {
	case best != Pending:
		return best
	case blockedOnly:
		return Blocked
	case last == Lapsed, last == Canceled:
		return last
	}
	return Failed
}

func overallOfAll(byStep [][]DeliveryView) Status {
	least, ended, good, bad := Read, Status(""), 0, 0
	for _, deliveries := range byStep {
		switch s := StepStatus(deliveries); s {
		case Sent, Delivered, Read:
			good++
			if s.Rank() < least.Rank() {
				least = s
			}
		default:
			bad++
			if endOrder(s) > endOrder(ended) {
				ended = s
			}
		}
	}
	switch {
	case bad == 0:
		return least
	case good > 0:
		return PartiallyFailed
	}
	return ended
}
