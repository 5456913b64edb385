package resilience

// Watched returns how many scopes a member keeps in mind.
func Watched(m *Member) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.scopes)
}
