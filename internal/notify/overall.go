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
	var success, open, ended Status
	for _, d := range deliveries {
		switch {
		case d.Status.taken():
			success = Best(success, d.Status)
		case !d.Final:
			open = Best(open, d.Status)
		case endOrder(d.Status) > endOrder(ended):
			ended = d.Status
		}
	}
	switch {
	case success != "":
		return success
	case open != "":
		return open
	case ended != "":
		return ended
	}
	return Pending
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
	default:
		return 0
	}
}

// Overall derives the status of a notification from its deliveries, grouped by
// step, and whether that is its end. canceled says that a cancel was confirmed,
// which outweighs what a call in flight turned out to be. A step of mode first
// that has no deliveries has not begun; without any, the notification is queued.
func Overall(mode Mode, byStep [][]DeliveryView, canceled bool) (s Status, final bool) {
	final = true
	started, called, moving := false, false, false
	for _, deliveries := range byStep {
		for _, d := range deliveries {
			started = true
			final = final && d.Final
			moving = moving || !d.Final && !d.Status.taken()
			switch d.Status {
			case Sending, Uncertain, Sent, Failed, Delivered, Read:
				called = true
			case Pending, Waiting, Queued, PartiallyFailed, Lapsed, Canceled, Blocked:
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
	case !started:
		return Queued, false
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
		if last.taken() {
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
		if len(deliveries) == 0 {
			continue
		}
		s := StepStatus(deliveries)
		if s.taken() {
			good++
			if s.Rank() < least.Rank() {
				least = s
			}
			continue
		}
		bad++
		if endOrder(s) > endOrder(ended) {
			ended = s
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
