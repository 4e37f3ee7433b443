"""To come."""

import streamlit as st

st.title("clip")
