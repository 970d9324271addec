/* Copyright (C) the limit_sliding authors */

/*
 * The script that decides limits in Redis, its arguments and its reply.
 *
 * A call carries any number of asks: the claims of a request, to be consumed
 * all or nothing, for n such requests at once.
 *
 *   KEYS  of all claims, in order, the state, KEY; KEY:limit; KEY:debt, where costs are
 *         settled; and KEY:forgotten, if the caller has leased units left.  In a cluster
 *         the states alone.
 *   ARGV  the number of kinds; of each kind: algorithm (as Algorithm; 8 more:
 *         the claim asks for another window than the zone's, whose
 *         Window::code() is one more number at the end of the kind), window of
 *         the zone in ms, limit, precision (COUNTER: 0 is auto, and 64 more if
 *         it is strict) or burst (buckets) or Calendar of the zone (FIXED, 8
 *         more if its calendar is local: then there are more numbers at the end
 *         of the kind, how many, and offsets from UTC around now, in order, each
 *         since when in ms, and the ms that are added),
 *         cost, look (1: decide, record nothing; 2: give back, see below; 3: of
 *         n units the last ones are leased: how many is one more number, and
 *         such a kind is of one ask of a TOKEN_BUCKET; 4: charge, see below;
 *         8 more than 0 or 3: the caller has leased units left; 16
 *         more than 0, 1 or 8: rejected units are recorded, see below; 32 more, where
 *         costs are settled: the first number after it is Claim::pace(), which else is
 *         the limit); of
 *         each ask: units n, number of claims m, m kinds, from 1 on; asks at
 *         the end are left out if all of their numbers are 1
 *
 * The reply is one flat array of integers: the server's time in ms; of each
 * ask: the units granted, 0 .. n, in order of arrival; of each of its claims:
 * the limit in force (0: the key's is "off", nothing was recorded; negative:
 * the key's is malformed, -limit is the one asked for, which was in force; from
 * kScriptOwn on: less that, it is the key's own, or 0 if the key is blocked:
 * nothing was granted or recorded; kScriptWindow more: the Window::code() of the
 * key's own window follows; kScriptDebt more, or less if it is negative: the key owes, and
 * the units and the window of DebtSchedule follow), and the values
 * that RemoteState::describe() takes, 0 without a limit; if the caller has units left, one
 * more: how many ms ago, and 1, the key was forgotten, or 0 if it was not.
 *
 * In a cluster, where costs are settled, and where places have limits of other
 * Redises as well, granted units can be refunded, as if they had never been
 * taken: a kind whose look is 2 has four more numbers, when it was taken, by the
 * reply's time, the first two values of the reply, and the Window::code() of the
 * window in force then, 0 if it was the zone's; to the values of a bucket all
 * that the same call granted before is added.  Nothing is given back if another
 * window is in force now.  As long as other claims have taken nothing else from a bucket
 * since, its state is the one that it would have had; else it may have less, for
 * a while.
 *
 * Where costs are settled, a kind whose look is 4 is charged whatever the limit
 * says: debt.lua tells how much the key owes then.
 *
 * Where rejected requests are recorded, a kind whose look has 16 more records the units
 * of the ask that this claim rejects, as if it had granted them, but no more than the
 * limit holds.  The values are of before, but for the times of a LOG.
 *
 * A claim that is given back or charged belongs to an ask of one unit, and is
 * granted, even where other claims of the ask are not.  It has one value: how
 * many units of the cost could not be charged, 0 if they are given back.  A refund
 * whose time is 0 is taken off the newest units first.
 *
 * Time is divided into epochs of a sixteenth of the window, a second at most.
 * Leased units may be spent in the epoch in which they were granted and the next.
 * A bucket grants units for leases only as long as no more than a quarter of it is
 * leased.
 *
 * A string at KEY:limit, which Override::parse() takes, is the limit of that key.
 * A key that has another window than the zone's has its state at KEY:CODE, where
 * CODE is the Window::code(), and its debt at KEY:CODE:debt.
 *
 * Units that were leased before the state of their key was deleted must not be spent:
 * so forget_script() leaves a mark at KEY:forgotten.
 */

#pragma once

#include <cstddef>
#include <cstdint>

#include <string_view>

#include "core/policy/policy.hpp"

namespace limit_sliding {

/* Added to a limit which is the key's own, so that equal ones differ. */
constexpr auto kScriptOwn = int64_t{1} << 52;

/* Added to that, if the limit has a window of its own. */
constexpr auto kScriptWindow = int64_t{1} << 51;

/* Added to the amount of a limit, if the key owes. */
constexpr auto kScriptDebt = int64_t{1} << 50;

static_assert(kRemoteMax < kScriptDebt, "no limit looks like these");

/* It can give back, and does while a slot moves to another node. */
constexpr auto kScriptCluster = 0x100u;

/* It can give back and charge, and knows keys that owe. */
constexpr auto kScriptSettles = 0x200u;

/* It can give back. */
constexpr auto kScriptGivesBack = 0x400u;

/* It can record rejected units. */
constexpr auto kScriptRejected = 0x800u;

/*
 * The script for these algorithms, a mask of 1 << Algorithm and of the flags above.  Returns
 * its length, and writes it with a final NUL if `bytes` is more.  Its first line, and no
 * other, reads the clock.
 */
size_t script(unsigned algorithms, char *buffer, size_t bytes);

/* A script that deletes the state and the debt at KEYS[1], and returns 1.  Other KEYS only name
 * the keys that it touches.  ARGV[1] is how many ms its mark is to last: as long as units may be
 * spent; 0: it has none.  ARGV[2], if it is given, follows KEYS[1] in the name of another state to
 * be deleted. */
std::string_view forget_script();

/* The script by which nodes tell each other of bans, see bans.lua. */
std::string_view bans_script();

} // namespace limit_sliding
