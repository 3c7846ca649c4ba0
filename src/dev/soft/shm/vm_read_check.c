/* SPDX-License-Identifier: MIT */
#include "dev/soft/shm/vm_read_check.h"

#include <pthread.h>
#include <sys/random.h>
#include <sys/uio.h>

/*
 * The proof is a random number, which cannot be guessed, at an address that its owner
 * sends. It exists as long as the process.
 */
static uint64_t secret;

static void choose_secret(void)
{
	if (getrandom(&secret, sizeof(secret), 0) != sizeof(secret))
		secret = 0;
}

struct snt__shm_vm_read_proof snt__shm_vm_read_offer(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, choose_secret);
	return (struct snt__shm_vm_read_proof){ (uintptr_t)&secret, secret };
}

bool snt__shm_vm_read_check(pid_t pid, const struct snt__shm_vm_read_proof *proof)
{
	uint64_t value = 0;
	struct iovec to = { &value, sizeof(value) };
	struct iovec from = { (void *)(uintptr_t)proof->addr, sizeof(value) };

	return pid > 0 && proof->value &&
	       process_vm_readv(pid, &to, 1, &from, 1, 0) == sizeof(value) &&
	       value == proof->value;
}
