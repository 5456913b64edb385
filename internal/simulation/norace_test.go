//go:build !race

package simulation

// usualWorlds are enough to find every fault of package mutants.
const usualWorlds = 500
