//! Who is declared lost, and when.
