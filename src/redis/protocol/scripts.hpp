/* Copyright (C) the limit_sliding authors */

/*
 * The script that decides limits in Redis, its arguments and its reply.
 *
 * A call carries any number of asks: the claims of a request, to be consumed all or nothing, for
 * n such requests at once.
 *
 *   KEYS  of each claim, in order: the state, KEY; KEY:limit; KEY:debt if costs are settled; and
 *         KEY:forgotten if the caller has leased units left.  In a cluster only the states.
 *   ARGV  the number of kinds of claims; of each kind
 *           - algorithm, as Algorithm; 8 more: the requested window is not the zone's
 *           - window of the zone in ms
 *           - limit
 *           - precision of COUNTER (0: auto; 64 more: strict), burst of a bucket, or Calendar of
 *             the zone of FIXED (8 more: local time)
 *           - cost
 *           - look: 0 consume; 1 decide, record nothing; 2 refund; 3 lease the last of n units, for
 *             a kind of one ask of a TOKEN_BUCKET; 4 charge; 8 more than 0 or 3: the caller has
 *             leased units left; 16 more than 0, 1 or 8: record rejected units; 32 more, if costs
 *             are settled: Claim::pace() is not the limit
 *           - with 32 in look, Claim::pace()
 *           - to refund, the time of the grant and the first two values, from the reply, and the
 *             Window::code() of the window in force then, 0: the zone's
 *           - to lease, the number of leased units
 *           - for another window than the zone's, its Window::code()
 *           - for local time, how many numbers follow; then offsets from UTC around now, in order:
 *             the time in ms from which each holds, and the ms to add
 *         of each ask: units n, number of claims m, m kinds, from 1 on; asks at the end are left
 *         out if all of their numbers are 1
 *
 * The reply is one flat array of integers: the server's time in ms; of each ask the granted
 * units, 0 .. n, in order of arrival; of each of its claims the limit, the values that
 * RemoteState::describe() takes, 0 without a limit, and, if the caller has leased units left, 1
 * plus the ms since the key was forgotten, or 0 if it was not.  The limit is
 *
 *   - 0 if the override of the key is "off"; nothing was recorded
 *   - negative if the override is malformed: -limit, as in the arguments, was in force
 *   - kScriptOwn more for an override, or kScriptOwn if it blocks the key: nothing was granted
 *   - kScriptWindow more if the override has another window than the zone's; its code follows
 *   - kScriptDebt more (less if negative) if the key owes; units and from of DebtPayment follow
 *
 * Scripts for a cluster, for settled costs, and for locations with limits of several Redises can
 * refund granted units, as if they had not been consumed.  The caller adds all units that the
 * same call granted before to the values of a bucket.  Nothing is refunded if another window is
 * in force now.  If no other claim has consumed from a bucket since, the bucket has the state
 * that it would have had; else it may have fewer free units for a while.
 *
 * If costs are settled, a charge is taken whatever the limit is: debt.lua tells how much the key
 * owes then.
 *
 * If rejected requests are recorded, the units of the ask that this claim rejects are recorded as
 * if they were granted, but no more than the limit holds.  The values are from before, except for
 * the times of a LOG.
 *
 * A refunded or charged claim belongs to an ask of one unit, and is granted even if other claims
 * of the ask are not.  Its only value is the number of units that could not be charged, 0 for a
 * refund.  A refund with the time 0 takes the newest units first.
 *
 * Time is divided into epochs of a sixteenth of the window, a second at most.  Leased units may
 * be spent in the epoch of their grant and in the next one.  A bucket grants units for leases as
 * long as no more than a quarter of it is leased.
 *
 * A string at KEY:limit is the override of the key, as Override::parse() takes it.  A key with
 * another window than the zone's has its state at KEY:CODE, with the CODE of Window::code(), and
 * its debt at KEY:CODE:debt.
 *
 * Units that were leased before the state of their key was deleted must not be spent, so
 * forget_script() leaves a mark at KEY:forgotten.
 */

#pragma once

#include <cstddef>
#include <cstdint>

#include <string_view>

#include "core/policy/policy.hpp"

namespace limit_sliding {

/* Added to a limit that is an override, to tell it from an equal limit of the zone. */
constexpr auto kScriptOwn = int64_t{1} << 52;

/* Added as well if the override has a window other than the zone's. */
constexpr auto kScriptWindow = int64_t{1} << 51;

/* Added to the absolute value of a limit if the key owes. */
constexpr auto kScriptDebt = int64_t{1} << 50;

static_assert(kRemoteMax < kScriptDebt, "no limit looks like these");

/* The script can refund, and works while a slot moves to another node. */
constexpr auto kScriptCluster = 0x100u;

/* The script can refund and charge, and knows debts. */
constexpr auto kScriptSettles = 0x200u;

/* The script can refund. */
constexpr auto kScriptGivesBack = 0x400u;

/* The script can record rejected units. */
constexpr auto kScriptRejected = 0x800u;

/* Writes the script for these algorithms, a mask of 1 << Algorithm and of the flags above, with a
 * final NUL if `bytes` exceeds its length.  Returns the length.  Only the first line of the
 * script reads the clock. */
size_t script(unsigned algorithms, char *buffer, size_t bytes);

/* Returns the script that deletes the state and the debt at KEYS[1], and returns 1.  Other KEYS
 * only name the keys that it touches.  ARGV[1] is the lifetime of its mark in ms, as long as
 * leased units may be spent; 0: no mark.  ARGV[2], if given, is appended to KEYS[1] to name
 * another state to be deleted. */
std::string_view forget_script();

/* Returns the script by which nodes exchange bans, see bans.lua. */
std::string_view bans_script();

} // namespace limit_sliding
