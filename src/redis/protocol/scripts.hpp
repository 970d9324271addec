/* Copyright (C) the limit_sliding authors */

/*
 * The script that decides limits in Redis, its arguments and its reply.
 *
 * A call carries any number of asks: the claims of a request, to be consumed all or nothing, for
 * n such requests at once.
 *
 *   KEYS  of each claim, in order: the state, KEY:SHAPE; KEY:limit; KEY:SHAPE:debt if costs are
 *         settled; and KEY:SHAPE:forgotten if the caller has leased units left, or
 *         KEY:SHAPE:totals if its zone has "sync=".  In a cluster only the states.
 *   ARGV  of each claim, in order: its head; empty or left out at the end: the head of the claim
 *         before it, if the ask has one claim.  A head is a string of numbers, each with the
 *         highest byte first, of these bytes:
 *           - 1 algorithm, as Algorithm
 *           - 1 purpose, as Purpose; kLease is for an ask of one claim of a TOKEN_BUCKET, and
 *             leases the last of its units
 *           - 1 number of claims of the ask, and 4 its units; at the first claim
 *           - 1 the counter is strict
 *           - 1 record rejected units
 *           - 1: 1 if the caller has leased units left, 2 if its zone has "sync=", else 0
 *           - 5 window of the zone in ms
 *           - 7 limit
 *           - 4 precision of COUNTER (0: auto), burst of a bucket, or Calendar of the zone of FIXED
 *             (8 more: local time)
 *           - 7 cost
 *           - 5 Window::code() of the requested window, 0: the zone's
 *           - 7 the time of Redis in ms after which the call does nothing, and is answered by the
 *             error "LATE TIME" with the time of Redis
 *           - if costs are settled, 7 Claim::pace()
 *           - to refund, 7 time of the grant, 7 and 7 the values of RemoteState::taken(), and 5 the
 *             Window::code() of the window in force then, 0: the zone's
 *           - to lease, 4 number of leased units
 *           - with "sync=", 6 a random number of the node and the key, 0 if the call is no report;
 *             and, signed, 7 the total that Redis has acknowledged, and 7 the present total.  The
 *             units of a report are those that may be consumed, the latest ones
 *           - for local time, offsets from UTC around now, in order: 8 the time in ms from which
 *             each holds, and 8 the ms to add
 *
 * The reply is one flat array: the server's time in ms; of each ask the granted units, 0 .. n, in
 * order of arrival; of each of its claims
 *
 *   - if the limit is not that of the head, or the key owes, the KeyTerms of the key: a negative
 *     number, -(A + B):
 *       A  kScriptOff: the override of the key is "off"; nothing was recorded
 *          kScriptMalformed: the override is malformed, and the limit of the head is in force
 *          kScriptForeign: the state or the debt has a format of another version of the module;
 *          the claim is not decided, and nothing was granted
 *          kScriptOwn plus the limit of the override; plus 0 if it blocks the key: nothing was
 *          granted; plus kScriptWindow if it has another window than the zone's
 *       B  kScriptDebt if the key owes
 *     Then the Window::code() of the override, and units and from of DebtPayment
 *   - without a limit, or with kScriptForeign, nothing; of a refund or a charge, one number; of
 *     other claims, the values of RemoteState, but of a COUNTER its state, or nil if it has none
 *   - if the caller has leased units left, 1 plus the ms since the key was forgotten, or 0 if it
 *     was not
 *   - with "sync=", the sum of the totals of others; the total that is acknowledged now; and 0, or
 *     1 if this is the first report of the number, and 2 plus the ms since the key was forgotten if
 *     it was, too.  The granted units are those that this call has consumed: an earlier call, whose
 *     reply was lost, may have consumed others
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
 * another window than the zone's has its state, and its debt, at the SHAPE with this window.
 *
 * Units that were leased before the state of their key was deleted must not be spent, and nodes
 * with "sync=" must forget their counts, so forget_script() leaves a mark at KEY:SHAPE:forgotten,
 * or in place of the totals.
 */

#pragma once

#include <cstddef>
#include <cstdint>

#include <string_view>

#include "core/policy/policy.hpp"

namespace limit_sliding {

/* What the reply says of a key's override and debt. */
constexpr int64_t kScriptOff = 1;
constexpr int64_t kScriptMalformed = 2;
constexpr int64_t kScriptForeign = 3;
constexpr auto kScriptOwn = int64_t{1} << 52;
constexpr auto kScriptWindow = int64_t{1} << 51;
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

/* The script knows totals of nodes. */
constexpr auto kScriptSyncs = 0x1000u;

/* Writes the script for these algorithms, a mask of 1 << Algorithm and of the flags above, with a
 * final NUL if `bytes` exceeds its length.  Returns the length.  Only the first line of the
 * script reads the clock. */
size_t script(unsigned algorithms, char *buffer, size_t bytes);

/* Returns the script that deletes the state and the debt at KEYS[1], and returns 1.  Other KEYS
 * only name the keys that it touches.  ARGV[1] is the lifetime of its mark in ms, as long as leased
 * units may be spent, or as units of the key count at nodes; 0: no mark.  ARGV[2] is the suffix of
 * the mark's name.  ARGV[3], if given, is another state to be deleted. */
std::string_view forget_script();

/* Returns the script by which nodes exchange bans, see bans.lua. */
std::string_view bans_script();

/* Return the scripts for zones with inflight=, see heartbeat.lua and hold.lua. */
std::string_view heartbeat_script();
std::string_view hold_script();

} // namespace limit_sliding
