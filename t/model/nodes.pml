/*
 * Copyright (C) the limit_sliding authors
 */

/*
 * Leases of several nodes, of one key in one Redis, as a spin model: no window
 * admits more than it would without them.  A call is one transition in Redis,
 * and one at the node when its answer comes, at any time after.  What a node's
 * workers do with each other is lease.pml's.
 *
 * Time is windows of two halves.  All that the previous window had counts in
 * the first half, and nothing of it in the second: as a sliding counter weighs
 * it, but for its steps.  A fixed window has no previous one.
 *
 * A node's view of a window's end is never late; that it may be early is the
 * same as not to spend.
 *
 * Parameters, all by -D.  The setting:
 *
 *   LIMIT     of a window
 *   ASKED     units that a call asks for, at most
 *   WINDOWS   there are
 *   SLIDING   the previous window counts, else not
 *
 * and the MUTANT_s, each of which leaves something out.
 */

#ifndef LIMIT
#define LIMIT  3
#endif
#ifndef ASKED
#define ASKED  2
#endif
#ifndef WINDOWS
#define WINDOWS  3
#endif

#define NODES  2

byte half;                       /* of all there are, by the server's clock */
#define WINDOW  (half / 2)

/* in Redis: granted in the present window, and in the one before */
byte at, newest, oldest;

/* a node: its lease, and the answer under way */
byte units[NODES], part[NODES];
bool is_asking[NODES];
byte told[NODES], told_part[NODES];

/* From here on nothing that the implementation has: the bookkeeping. */

byte admitted[WINDOWS];

#ifdef SLIDING
#define COUNTS(previous)  (half % 2 == 0 -> (previous) : 0)
#else
#define COUNTS(previous)  0
#endif

#define BEFORE  (WINDOW > 0 -> admitted[WINDOW - 1] : 0)

/* A request is served, on behalf of a unit. */
inline admit(window) {
    admitted[window]++;
    assert(admitted[WINDOW] + COUNTS(BEFORE) <= LIMIT)
}

inline turn() {
    if
    :: at == WINDOW
    :: at + 1 == WINDOW -> oldest = newest; newest = 0; at = WINDOW
    :: at + 1 < WINDOW -> oldest = 0; newest = 0; at = WINDOW
    fi
}

active [NODES] proctype node() {
    byte wanted, free;

    do
    /* Redis grants what there is, and counts it at once */
    :: atomic {
           !is_asking[_pid] ->
           turn();
           free = newest + COUNTS(oldest);
           free = (free < LIMIT -> LIMIT - free : 0);
           select(wanted : 1 .. ASKED);
           wanted = (wanted < free -> wanted : free);
#ifndef MUTANT_COUNTED_WHEN_SPENT
           newest = newest + wanted;
#else
           newest = newest + (wanted > 0 -> 1 : 0);
#endif
           is_asking[_pid] = true;
           told[_pid] = wanted;
           told_part[_pid] = WINDOW;
           wanted = 0;
           free = 0
       }

    /* the first unit is of who waits, admitted when Redis said so; an answer is
       not lost, as that is no worse than not to spend what it brought */
    :: atomic {
           is_asking[_pid] ->
           if
           :: told[_pid] > 0 ->
               told[_pid]--;
               admit(told_part[_pid])
           :: else
           fi;
           if
           :: units[_pid] == 0 || part[_pid] < told_part[_pid] ->
#ifdef MUTANT_LEFTOVERS
               units[_pid] = units[_pid] + told[_pid];
#else
               units[_pid] = told[_pid];
#endif
               part[_pid] = told_part[_pid]
           :: units[_pid] > 0 && part[_pid] == told_part[_pid] ->
               units[_pid] = units[_pid] + told[_pid]
           fi;
           is_asking[_pid] = false;
           told[_pid] = 0;
           told_part[_pid] = 0;
           if
           :: units[_pid] == 0 -> part[_pid] = 0
           :: else
           fi
       }

#ifdef MUTANT_NO_UNTIL
    :: atomic { units[_pid] > 0 ->
#else
#ifdef MUTANT_LATE_END
    :: atomic { units[_pid] > 0 && half <= 2 * part[_pid] + 2 ->
#else
    :: atomic { units[_pid] > 0 && part[_pid] == WINDOW ->
#endif
#endif
           units[_pid]--;
#ifdef MUTANT_COUNTED_WHEN_SPENT
           turn();
           newest++;
#endif
           admit(WINDOW);
           if
           :: units[_pid] == 0 -> part[_pid] = 0
           :: else
           fi
       }

    /* a crash, or a table that forgets */
    :: atomic { units[_pid] > 0 -> units[_pid] = 0; part[_pid] = 0 }

    :: half == 2 * WINDOWS - 1 -> break
    od
}

active proctype clock() {
    do
    :: atomic { half < 2 * WINDOWS - 1 -> half++ }
    :: else -> break
    od
}
