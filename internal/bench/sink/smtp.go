package sink

import (
	"bufio"
	"bytes"
	"errors"
	"net"
)

var errMail = errors.New("not a mail that the sink reads")

// serveSMTP takes every mail, as RFC 5321 goes without extensions that would cost
// something. A mail is known by its Message-ID.
func (s *Sink) serveSMTP(c net.Conn, in *bufio.Reader) error {
	say := func(text string) error {
		_, err := c.Write([]byte(text + "\r\n"))
		return err
	}
	if err := say("220 sink ESMTP"); err != nil {
		return err
	}
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return err
		}
		verb := bytes.ToUpper(line[:min(4, len(line))])
		answer := "250 OK"
		switch string(verb) {
		case "EHLO":
			answer = "250-sink\r\n250-PIPELINING\r\n250-8BITMIME\r\n250 SMTPUTF8"
		case "HELO", "MAIL", "RCPT", "RSET", "NOOP":
		case "QUIT":
			return say("221 bye")
		case "DATA":
			if err := say("354 go on"); err != nil {
				return err
			}
			if err := s.mail(in); err != nil {
				return err
			}
			answer = "250 taken"
		default:
			return errMail
		}
		if err := say(answer); err != nil {
			return err
		}
	}
}

// mail reads a mail to its end.
func (s *Sink) mail(in *bufio.Reader) error {
	name := []byte("message-id:")
	var known id
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return err
		}
		if bytes.Equal(line, []byte(".\r\n")) {
			break
		}
		if len(line) > len(name) && bytes.EqualFold(line[:len(name)], name) {
			_, value, _ := bytes.Cut(line, []byte("<"))
			value, _, _ = bytes.Cut(value, []byte("@"))
			known = named(value)
		}
	}
	if known == (id{}) {
		return errMail
	}
	s.received(known)
	return nil
}
