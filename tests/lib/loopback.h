/* SPDX-License-Identifier: MIT */
#ifndef SNT_TESTS_LOOPBACK_H
#define SNT_TESTS_LOOPBACK_H

#include <stdint.h>

/*
 * Loopback addresses of this process alone, from a block of 127.64.0.0/10. Process ids do not
 * tell processes of one network apart: containers may share it, and a number may be long.
 * So a block is claimed by binding a name in the network namespace, and is taken only if UDP
 * port 4791 is free on all of its addresses. A child of fork() claims a block of its own.
 */

#define LOOPBACK_ADDRESSES 64u /* of each process */

/* Below LOOPBACK_ADDRESSES. The text stays until the process ends, or loopback_move(). */
void loopback_address(unsigned number, uint8_t address_out[4]);
const char *loopback_text(unsigned number);

/* From now on these are others, because a test has failed and left some of them in use. */
void loopback_move(void);

/* Claims a block, `first` if that is free; until the process ends. Returns its number. For the
 * functions above one is claimed when the program starts. */
unsigned loopback_claim(unsigned first);
void loopback_in_block(unsigned block, unsigned number, uint8_t address_out[4]);

#endif
