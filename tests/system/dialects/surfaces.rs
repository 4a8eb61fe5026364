//! Every path of the surfaces: what it takes, what it answers, and in whose words it refuses.
