package cli

import (
	"errors"
	"os"
)

// replaceFile writes a file that only its owner can read, whatever was there.
func replaceFile(path string, text []byte) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}
