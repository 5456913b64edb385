//go:build race

package simulation

// usualWorlds are few, since one goroutine alone shows no races: those are looked
// for in the tests of package resilience.
const usualWorlds = 100
