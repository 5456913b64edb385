//go:build !unix

package bench

import "syscall"

func ownUsage() (usage, error) { return usage{}, nil }

func ownGroup() *syscall.SysProcAttr { return nil }
