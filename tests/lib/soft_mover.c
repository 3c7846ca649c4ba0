/* SPDX-License-Identifier: MIT */
#include "lib/soft_mover.h"

#include "lib/test.h"

#define PACKETS 16

/*
 * The driver
 */

static void mover_random(void *arg, void *buffer, size_t length)
{
	struct soft_mover *mover = arg;
	uint8_t *bytes = buffer;

	for (size_t i = 0; i < length; i++)
		bytes[i] = (uint8_t)((mover->random = mover->random * 69069 + 1) >> 16);
}

static void driver_lock(void *arg)
{
	pthread_mutex_lock(&((struct soft_mover *)arg)->lock);
}

static void driver_unlock(void *arg)
{
	pthread_mutex_unlock(&((struct soft_mover *)arg)->lock);
}

static void mover_kick(void *arg)
{
	struct soft_mover *mover = arg;

	pthread_mutex_lock(&mover->lock);
	mover->kick = true;
	pthread_cond_signal(&mover->kicked);
	pthread_mutex_unlock(&mover->lock);
}

static const struct snt__soft_driver driver = {
	.random = mover_random,
	.lock = driver_lock,
	.unlock = driver_unlock,
	.kick = mover_kick,
};

/*
 * The thread
 */

static uint64_t mover_now(const struct soft_mover *mover)
{
	return mover->now_ns ? mover->now_ns() : 0;
}

static size_t flatten_packet(const struct snt__soft_packet *packet, uint8_t *bytes)
{
	size_t length = packet->header_length;

	memcpy(bytes, packet->header, length);
	for (unsigned i = 0; i < packet->payload_count; i++) {
		memcpy(bytes + length, packet->payload[i].iov_base,
		       packet->payload[i].iov_len);
		length += packet->payload[i].iov_len;
	}
	memset(bytes + length, 0, 3);
	return length + snt__wire_pad(packet->payload_length);
}

static bool shuttle_packets(struct soft_mover *mover, unsigned from)
{
	struct snt__soft_packet packets[PACKETS];
	uint8_t bytes[SNT__WIRE_HEADER_MAX + 4096 + 4];
	unsigned count = snt__soft_output(mover->device[from], packets, PACKETS,
					  mover_now(mover));

	for (unsigned i = 0; i < count; i++) {
		size_t length = flatten_packet(&packets[i], bytes);

		snt__soft_input(mover->device[!from], packets[i].path, bytes, length,
				mover_now(mover));
	}
	return count;
}

static void run_timers(struct soft_mover *mover)
{
	for (unsigned i = 0; i < 2; i++)
		if (snt__soft_deadline(mover->device[i]) <= mover_now(mover))
			snt__soft_timer(mover->device[i], mover_now(mover));
}

static void *move_packets(void *arg)
{
	struct soft_mover *mover = arg;

	pthread_mutex_lock(&mover->lock);
	while (!mover->over) {
		bool moved = shuttle_packets(mover, 0);

		moved |= shuttle_packets(mover, 1);
		if (mover->now_ns)
			run_timers(mover);
		/* Other threads want a turn, or there is nothing to do. */
		if (moved) {
			pthread_mutex_unlock(&mover->lock);
			pthread_mutex_lock(&mover->lock);
		} else if (!mover->kick) {
			pthread_cond_wait(&mover->kicked, &mover->lock);
		}
		mover->kick = false;
	}
	pthread_mutex_unlock(&mover->lock);
	return NULL;
}

/*
 * Its life
 */

void soft_mover_open(struct soft_mover *mover, uint64_t (*now_ns)(void))
{
	*mover = (struct soft_mover){ .now_ns = now_ns,
				      .lock = PTHREAD_MUTEX_INITIALIZER,
				      .kicked = PTHREAD_COND_INITIALIZER };
	for (unsigned i = 0; i < 2; i++) {
		const uint8_t gid[1][16] = {
			{ [10] = 0xff, 0xff, 10, 0, 0, (uint8_t)(i + 1) }
		};
		struct snt__soft_config config = {
			.name = "soft",
			.driver = &driver,
			.driver_arg = mover,
			.gids = gid,
			.gid_count = 1,
		};

		assert_int_equal(snt__soft_device_create(&config, &mover->device[i]),
				 0);
	}
}

void soft_mover_start(struct soft_mover *mover)
{
	assert_int_equal(pthread_create(&mover->thread, NULL, move_packets, mover), 0);
}

void soft_mover_stop(struct soft_mover *mover)
{
	pthread_mutex_lock(&mover->lock);
	mover->over = true;
	pthread_cond_signal(&mover->kicked);
	pthread_mutex_unlock(&mover->lock);
	pthread_join(mover->thread, NULL);
}

void soft_mover_close(struct soft_mover *mover)
{
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(snt__soft_device_destroy(mover->device[i]), 0);
}
