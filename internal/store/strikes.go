package store

import (
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// An address that cannot be reached once may be reached an hour later: a mailbox is
// full, a phone is off. Only if that goes on it is taken for dead, and for a while.
const (
	// strikesOut is how many deliveries in a row must have ended so.
	strikesOut = 5
	// strikesSpan is the least time from the first to the last of them.
	strikesSpan = 3 * 24 * time.Hour
	// strikesBar is for how long the address is suppressed then.
	strikesBar = 7 * 24 * time.Hour
	// strikesKept is how long they count: after so long without another one the
	// count begins anew.
	strikesKept = 30 * 24 * time.Hour
)

// Strike is a delivery that ended because its address could not be reached. The
// fifth of an address on a channel in a project, three days or more after the first
// and without a success since, suppresses the address for a week.
type Strike struct {
	Project string
	Channel notify.Channel
	Address [16]byte
	Account string
	At      time.Time
}

const countStrikes = `
with r as (
  select project, channel, address, least(count(*), 32767)::int2 as strikes, min(at) as first_at, max(at) as last_at
  from unnest($1::text[], $2::text[], $3::bytea[], $4::timestamptz[]) as r (project, channel, address, at)
  group by project, channel, address
)
insert into dispatcher.address_strikes as k (project, channel, address, strikes, first_at, last_at)
select project, channel, address, strikes, first_at, last_at from r order by project, channel, address
on conflict (project, channel, address) do update set
  strikes = case when k.last_at < excluded.first_at - $5::interval then excluded.strikes
    else least(k.strikes::int4 + excluded.strikes, 32767)::int2 end,
  first_at = case when k.last_at < excluded.first_at - $5::interval then excluded.first_at else least(k.first_at, excluded.first_at) end,
  last_at = greatest(k.last_at, excluded.last_at)`

// Whether the address was reached meanwhile is asked here only, so that a success
// costs nothing. If it was, the count begins anew with the latest strike.
const weighStrikes = `
with named as materialized (
  select distinct on (project, channel, address) project, channel, address, at, account
  from unnest($1::text[], $2::text[], $3::bytea[], $4::timestamptz[], $5::text[]) as n (project, channel, address, at, account)
  order by project, channel, address, at desc
), due as materialized (
  select project, channel, address, n.at, n.account, exists (
    select from dispatcher.deliveries d
    where d.address = k.address and d.project = k.project and d.channel = k.channel
      and d.finished_at > k.first_at and d.status in ('sent', 'delivered', 'read')) as reached
  from named n join dispatcher.address_strikes k using (project, channel, address)
  where k.strikes >= $6 and k.last_at - k.first_at >= $7::interval
), anew as (
  update dispatcher.address_strikes k set strikes = 1, first_at = k.last_at from due
  where due.reached and k.project = due.project and k.channel = due.channel and k.address = due.address
), out as (
  delete from dispatcher.address_strikes k using due
  where not due.reached and k.project = due.project and k.channel = due.channel and k.address = due.address
), r (project, channel, address, reason, source, at, until, by_whom, why) as (
  select project, channel, address, $8::text, account, at, at + $9::interval, '', '' from due where not reached
)` + keepSuppressions

func queueStrikes(b *pgx.Batch, list []*Strike, changes *listed) {
	if len(list) == 0 {
		return
	}
	var project, channel, account []string
	var address [][]byte
	var at []time.Time
	for _, s := range list {
		project, channel, address = append(project, s.Project), append(channel, string(s.Channel)), append(address, s.Address[:])
		account, at = append(account, s.Account), append(at, s.At)
	}
	b.Queue(countStrikes, project, channel, address, at, strikesKept)
	b.Queue(weighStrikes, project, channel, address, at, account, strikesOut, strikesSpan, ReasonUnreachable, strikesBar).Query(changes.read)
}
